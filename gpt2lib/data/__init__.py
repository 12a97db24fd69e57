"""Corpora, token streams, shards and batches."""
