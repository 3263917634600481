"""A job in a local federation, start to end."""

from dagora.federated.run import Watcher
from dagora.federation.client import Client
from dagora.federation.local import LocalFederation
from dagora.federation.plan import Plan
from dagora.result import Result


def learn_locally(local: LocalFederation, plan: Plan, watch: Watcher | None = None) -> Result:
    """Submit, follow, fetch; a site that could not start is told in its own words."""
    local.wait_for_server()
    with Client(local.admin) as client:
        return client.follow(client.submit(plan), watch, local.check)
