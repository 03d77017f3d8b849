"""``sealsum silo describe-model``: the terms of a model that silo.yaml lists, for a researcher's job file.

Builds the module as rounds do. Reads no records; the weights it writes are those that the module begins with.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
import yaml
from safetensors.numpy import save

from privacy.errors import ConfigurationError
from privacy.model_terms import ModelTerms
from silo_agent.ledger_options import config_option
from silo_agent.models.module_adapter import made, tensors_of
from silo_agent.models.own import OwnModule
from silo_agent.settings import read_settings


@click.command(short_help="Say what a job file must say of a torch module.")
@click.argument("name", metavar="MODEL")
@config_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the weights it begins with here (safetensors), for initial_model in a job file.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def describe_model(name: str, config: Path, out: Path | None, as_json: bool) -> None:
    """Say what a job file must say of MODEL, a torch module under model_adapters in silo.yaml."""
    listed = read_settings(config).model_adapters
    own = listed.get(name)
    if not isinstance(own, OwnModule):
        modules = sorted(one for one, how in listed.items() if isinstance(how, OwnModule))
        raise ConfigurationError(
            f"{name}: expected a model that {config} lists with module, got none; it lists "
            f"{', '.join(modules) or 'none'}"
        )
    if out is not None and out.exists():
        raise ConfigurationError(f"{out}: exists already; choose another file")
    module = made(name, own)
    layout = tensors_of(module)
    terms = ModelTerms(adapter=name, inputs=1, layout=layout)
    spelt = {"adapter": name, "layout": [one.model_dump(mode="json") for one in layout]}
    if out is not None:
        tensors = {one: tensor.detach().numpy() for one, tensor in module.named_parameters()}
        out.write_bytes(save(tensors))
        click.echo(f"{out}: {terms.parameters} parameters", err=True)
    if as_json:
        click.echo(json.dumps({"model": spelt, "parameters": terms.parameters}))
        return
    click.echo(yaml.safe_dump({"model": spelt}, default_flow_style=None, sort_keys=False), nl=False)
