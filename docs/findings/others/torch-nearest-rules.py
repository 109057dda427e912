# scale_factor=(1.0, 1.015): 64 cells stay 64. Which cell is read depends on the image's size and layout in memory.
import torch


def cells(height, layout=torch.contiguous_format):
    """The cells that a row of outputs reads, by the numbers in them."""
    x = torch.arange(64.0).expand(1, 8, height, 64).contiguous(memory_format=layout)
    return torch.nn.functional.interpolate(x, scale_factor=(1.0, 1.015), mode="nearest")[0, 0, 0].int().tolist()


print("torch", torch.__version__)
images = {"2 rows": cells(2), "200 rows": cells(200), "200 rows, channels last": cells(200, torch.channels_last)}
for name, read in images.items():
    by_size, by_factor = read == list(range(64)), read == [int(o / 1.015) for o in range(64)]
    print(
        f"{name}: output 63 reads cell {read[63]}, {'o' if by_size else 'floor(o/1.015)' if by_factor else 'neither'}"
    )
