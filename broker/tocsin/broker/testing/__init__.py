"""For tests of your own agents: a fleet in memory, time that you move, agents that follow a script.

    from tocsin.broker.testing import ScriptedAgent, lapse, run_until_idle

The pytest fixture `fleet` (registered when Tocsin is installed with `tocsin[testing]`) gives a
fresh fleet with a `ManualClock`. It runs on fakeredis, or on a real server where the environment
variable `TOCSIN_TEST_URL` names one; judge delivery counts and recovery on a real one.
"""

from tocsin.broker.testing.fleet import FakeServer, Fleet, lapse
from tocsin.broker.testing.script import ScriptedAgent, run_until_idle

__all__ = ["FakeServer", "Fleet", "ScriptedAgent", "lapse", "run_until_idle"]
