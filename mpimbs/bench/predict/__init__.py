"""Speed on a cluster, predicted."""
