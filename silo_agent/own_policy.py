"""The silo's own threat model: a shipped profile or a file of the hospital's, beside the federation's."""

from __future__ import annotations

from pathlib import Path

from policies.loader import LoadedPolicy, load_threat_model
from policies.profiles import profile_text
from privacy.errors import ConfigurationError
from privacy.secagg.he.parameters import ONE_KEY_SCHEMES, assert_available
from privacy.secagg.threshold.interpreter import python_of
from privacy.secagg.threshold.parameters import JOINT_KEY_SCHEMES
from privacy.secagg.threshold.worker import assert_available as assert_openfhe
from silo_agent.settings import SiloSettings, names_a_file


def load_own_policy(settings: SiloSettings) -> LoadedPolicy:
    """Read and judge what ``threat_model`` names.

    Raises:
        ConfigurationError: no such profile or file. PolicyInvalid: with every fault of it.
    """
    parents = [_text_of(path) for path in settings.threat_model_parents]
    if not names_a_file(settings.threat_model):
        return load_threat_model(profile_text(settings.threat_model), parents)
    return load_threat_model(_text_of(Path(settings.threat_model)), parents)


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"threat_model: {path}: cannot be read ({type(error).__name__})") from error


def assert_scheme_runs(policy: LoadedPolicy, settings: SiloSettings) -> None:
    """Refuse to serve under a threat model whose scheme this installation lacks the libraries for.

    Raises:
        ConfigurationError: it does, or ``threshold_he`` is set and does not run; the message names what is
            missing and what to do.
    """
    scheme = policy.model.spec.require.secagg.scheme
    if scheme in ONE_KEY_SCHEMES:
        assert_available()
    if settings.threshold_he is not None or scheme in JOINT_KEY_SCHEMES:
        assert_openfhe(python_of(settings.threshold_he))
