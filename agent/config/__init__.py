"""The configuration: settings, the origins of their values, and the documents generated from them."""
