"""The models: TLA+ specifications of the path, and the program that checks them and their mutants with TLC."""
