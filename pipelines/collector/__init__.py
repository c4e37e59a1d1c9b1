"""The service that takes what agents send, and keeps what it answered for."""
