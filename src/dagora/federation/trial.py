"""A job in a local federation, start to end."""

import time

from dagora.errors import DagoraError
from dagora.federated.run import Watcher
from dagora.federation.client import Client
from dagora.federation.local import LocalFederation
from dagora.federation.plan import Plan
from dagora.result import Result


def learn_locally(local: LocalFederation, plan: Plan, watch: Watcher | None = None) -> Result:
    """Submit, follow, fetch; a site that could not start is told in its own words."""
    local.wait_for_server()
    with Client(local.admin) as client:
        run = client.submit(plan)
        time.sleep(0.0)
        try:
            return client.follow(run, watch)
        except DagoraError:
            local.check()
            raise
