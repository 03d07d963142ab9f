"""Files that go into the repository as they are: each stands alone, Python 3.10, never mmctl."""
