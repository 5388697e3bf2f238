"""Tests in a Chromium: a package, so that its fixtures can last as long as it does."""
