"""Files as such: replaced as a whole, locked, named, and listed, here or in an object store."""
