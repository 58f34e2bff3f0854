"""The connections of the HTTP server: how they are accepted, and how requests are read from them."""
