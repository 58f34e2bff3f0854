"""The configuration: settings, where each value comes from, and the documents that are written from them."""
