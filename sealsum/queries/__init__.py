"""A researcher's half of a query: the request, and what an opened vector of answers says, with its errors."""
