"""How ``silo.yaml`` lists a model of the silo's own: an adapter class, or a torch module by its dotted name.

    model_adapters:
      ours: hospital.models:OurAdapter
      resnet18:
        module: torchvision.models:resnet18
        arguments: {num_classes: 1}
        image: [3, 32, 32]
        convert_batchnorm: true
        out_of_place: true

Jobs name ``resnet18``; what that is, and that it may run here, only the silo's owner says. Knows no torch.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from privacy.canonical import Frozen

ClassPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$")]
Extent = Annotated[int, Field(ge=1)]


class OwnModule(Frozen):
    """What makes a torch module, and what is changed in it before it is trained."""

    module: ClassPath
    """A class or function that returns an ``nn.Module``."""
    arguments: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Given to it by name. What it then loads, such as pretrained weights, is the owner's doing."""
    image: tuple[Extent, ...] = ()
    """Shape in which one record is given to it, such as [3, 32, 32]; left out: flat."""
    convert_batchnorm: bool = False
    """Each BatchNorm becomes a GroupNorm of the same channels and weights. Else DP refuses the model, and
    without DP its running statistics are never exchanged."""
    out_of_place: bool = False
    """Nothing is changed in place (``x += y``, ``inplace=True``): engines of DP must see what layers gave."""


OwnAdapter = ClassPath | OwnModule
