"""What a test starts, as Recordings that outlive the session."""
