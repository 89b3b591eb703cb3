"""A release of two linked tables, from records to what is published of both."""
