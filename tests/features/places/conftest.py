"""One sshd for all tests of places: to make its keys and to start it takes longer than most of them."""

from tests.support.ssh_host import one_host, ssh_host

__all__ = ["one_host", "ssh_host"]
