"""What happens to data: from the bytes of a source to the bytes of a shard."""
