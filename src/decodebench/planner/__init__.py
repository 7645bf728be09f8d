"""Model config + flags + memory -> what the engine will build, what fits, may the hybrid KV cache manager stay on."""
