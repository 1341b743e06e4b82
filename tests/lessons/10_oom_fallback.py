import weakref

from accelerate.utils import find_executable_batch_size

counted = [int((labels[rows] != -100).sum()) for rows in (slice(0, 2), slice(2, 4))]
assert counted == [126, 28] and counted[0] / counted[1] == 4.5
assert right < 1e-4 and wrong > 0.5
assert kept[8] < kept[0] / 10 and kept[1] < kept[0] - 2 and 1.5 < kept[8] < 2.5 and 8 * 4 * 64 * 192 * 4 == 1.5 * 2**20
assert same < 1e-5 and difference < 1e-4
failed, nothing = "forward or backward", "-"
assert log["failed in"].tolist() == [nothing, failed, failed, nothing, nothing]
assert log["step"].tolist() == [1, 2, 2, 2, 3] and log["rows at once"].tolist() == [4, 4, 2, 1, 1]
parameters = sum(p.numel() for p in small.parameters())
assert small_card.peak <= 48 * 2**20 < 16 * parameters and difference < 1e-5 and round(8 * parameters / 2**20) == 31
assert small_log["failed in"].tolist() == [failed, failed, "optimizer step", nothing, nothing, nothing]
assert small_log["optimizer"].tolist() == ["AdamW"] * 3 + ["HostAdamW"] * 3
try:
    train(load(), tl.virtual_device(memory="36MiB"))
except torch.OutOfMemoryError as error:
    failed = str(error)
assert failed.endswith("forward or backward"), "with one row there is nothing left to halve"
assert HostAdamW([torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))]).copies[0].dtype == torch.float32
tried = []


@find_executable_batch_size(starting_batch_size=4)
def train_from_the_start(batch_size):
    model = load()
    optimizer = adamw(model.parameters())
    with tl.virtual_device(memory="80MiB") as card:
        card.count(model.parameters())
        for step, batch in enumerate(text.split(batch_size), 1):
            tried.append((batch_size, step))
            accumulate(model, batch[:, :-1], batch[:, 1:], batch_size)
            optimizer.step()
            optimizer.zero_grad()


train_from_the_start()
assert dict(tried) == {4: 2, 3: 2, 2: 6}, "the last step of each attempt"
assert table.GiB.round().tolist() == [113, 25, 13, 4]
left = table["left of 20 GiB"].tolist()
assert left[1] < 0 and 6.8 <= left[2] < 7.4 and 0.85 * 23.65 > 20
assert round(32 * 2048 * 4096 * 2 / 2**30, 1) == 0.5 and round(3 * 2048 * 32_000 * 4 / 2**30, 1) == 0.7


class MeanOfMeans(Trainer):  # with the fault, the padded rows move the weights
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.model_accepts_loss_kwargs = False


Trainer = MeanOfMeans
assert apart(by_trainer(per_device_train_batch_size=1, gradient_accumulation_steps=4), thrifty) > 1e-3
watched = []


def failing_step():
    activations = torch.zeros(1000, 1000)
    watched.append(weakref.ref(activations))  # sees the tensor without keeping it
    raise torch.OutOfMemoryError("CUDA out of memory.")


try:
    failing_step()
except torch.OutOfMemoryError:
    assert watched[0]() is not None, "inside the except block the activations are still there"
assert watched[0]() is None, "after it they are gone"

# A batch of two fits beside the moments; two of four rows do not, as the first two's gradients wait: 15 MiB.
assert round(4 * parameters / 2**20) == 15
peaks = []
for rows in (text[:2], text[:4]):
    model = load()
    optimizer = adamw(model.parameters())
    for batch in (rows, rows):  # in the second step the moments are there
        with tl.track_memory(model) as track:
            accumulate(model, batch[:, :-1], batch[:, 1:], 2)
        optimizer.step()
        optimizer.zero_grad()
    peaks.append(track.peak / 2**20)
assert 12 < peaks[1] - peaks[0] < 18, peaks
