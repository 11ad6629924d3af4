"""Parts whose bodies are joined one by one: for divide-and-conquer, and in absolute coordinates."""
