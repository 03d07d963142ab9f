"""Where the time of a request went: Triton's traces -> critical path. Pure."""
