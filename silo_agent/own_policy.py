"""The silo's own threat model: a shipped profile or a file of the hospital's, beside the federation's."""

from __future__ import annotations

from pathlib import Path

from policies.loader import LoadedPolicy, load_threat_model
from policies.profiles import profile_text
from privacy.errors import ConfigurationError
from privacy.secagg.he.parameters import ONE_KEY_SCHEMES, assert_available
from silo_agent.settings import SiloSettings, names_a_file


def load_own_policy(settings: SiloSettings) -> LoadedPolicy:
    """Read and judge what ``threat_model`` names.

    Raises:
        ConfigurationError: no such profile or file. PolicyInvalid: with every fault of it.
    """
    if not names_a_file(settings.threat_model):
        return load_threat_model(profile_text(settings.threat_model))
    path = Path(settings.threat_model)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"threat_model: {path}: cannot be read ({type(error).__name__})") from error
    return load_threat_model(text)


def assert_scheme_runs(policy: LoadedPolicy) -> None:
    """Refuse to serve under a threat model whose scheme this installation lacks the libraries for.

    Raises:
        ConfigurationError: it does; the message names the library and its extra.
    """
    if policy.model.spec.require.secagg.scheme in ONE_KEY_SCHEMES:
        assert_available()
