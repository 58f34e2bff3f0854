"""Damaged input: bytes with a few random changes."""

from random import Random


def mutated(raw: bytes, random: Random) -> bytes:
    """Return the bytes with some of them overwritten, removed, repeated or inserted."""
    mutant = bytearray(raw)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(mutant) + 1)
        match random.randrange(4):
            case 0:
                mutant[at : at + 1] = bytes((random.randrange(256),))
            case 1:
                del mutant[at : at + random.randint(1, 20)]
            case 2:
                mutant[at:at] = mutant[at : at + random.randint(1, 60)]
            case _:
                mutant[at:at] = random.randbytes(random.randint(1, 9))
    return bytes(mutant)
