#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on a file of bytes, with a checkpoint after every step:

    PYTHONPATH=build/python examples/gpt.py /tmp/gpt README.md
    PYTHONPATH=build/python examples/gpt.py /tmp/gpt README.md --plain     # torch.save, to compare

Started again it goes on behind its last checkpoint, with the same numbers as if it had never
stopped. SIGUSR1, which a batch system sends before the time is up (--signal=USR1@60), has it
wait until the last checkpoint is durable and end with 75 ("again, please").
"""

import argparse
import os
import signal
import sys
import time

import torch

import stoker.torch

CONTEXT = 64
WIDTH, HEADS, LAYERS = 96, 4, 3
AGAIN = 75  # EX_TEMPFAIL
REPORT_STEPS = 50


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(),
                                       torch.nn.Linear(4 * WIDTH, WIDTH), torch.nn.Dropout(0.1))

    def forward(self, x, mask):
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norms[1](x))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token = torch.nn.Embedding(256, WIDTH)
        self.place = torch.nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = torch.nn.Linear(WIDTH, 256)
        self.register_buffer("mask", torch.ones(CONTEXT, CONTEXT).triu(1).bool(), persistent=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.place
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(x)


class PlainSaves:
    """Before: torch.save and fsync in the middle of the training."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, "last.pt")

    def load(self, **parts):
        if not os.path.exists(self.path):
            return None
        state = torch.load(self.path)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        torch.set_rng_state(state["rng"])
        return state

    def save(self, step, **parts):
        state = {name: part.state_dict() for name, part in parts.items()}
        with open(self.path + ".tmp", "wb") as file:
            torch.save(dict(state, step=step, rng=torch.get_rng_state()), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".tmp", self.path)

    def wait(self):
        pass


def open_loader(path, batch_size, folder):
    # Windows of 65 bytes, each half a window behind the last: a context and what follows.
    windows = {"format": "window", "token_bytes": 1, "window_tokens": CONTEXT + 1,
               "stride_tokens": CONTEXT // 2, "index_path": os.path.join(folder, "index")}
    return stoker.torch.DataLoader(path, batch_size=batch_size, shuffle=True, seed=7,
                                   drop_last=True, data_options=windows)


def train(given):
    torch.manual_seed(7)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    saved = PlainSaves(given.folder) if given.plain else stoker.torch.Checkpointer(given.folder)
    loader = open_loader(given.data, given.batch, given.folder)
    parts = {"model": model, "optimizer": optimizer, "loader": loader}
    told = []
    signal.signal(signal.SIGUSR1, lambda number, frame: told.append(number))

    done = saved.load(**parts)
    step = done["step"] if done else 0
    print(f"from step {step}, {sum(one.numel() for one in model.parameters())} weights", flush=True)
    began, saving = time.monotonic(), 0.0
    while step < given.steps:
        for batch in loader:
            tokens = batch.long()
            scores = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            at = time.monotonic()
            saved.save(step, **parts)
            saving += time.monotonic() - at
            if step % REPORT_STEPS == 0 or step == given.steps:
                print(f"step {step}: loss {loss.item():.4f}, {time.monotonic() - began:.1f} s, of "
                      f"them {saving:.2f} s in save()", flush=True)
            if told or step == given.steps:
                break
        if told:
            break
    saved.wait()
    if told:
        print(f"told to stop: step {step} is saved", flush=True)
        return AGAIN
    weights = [value.double().sum().item() for value in model.state_dict().values()]
    print(f"weights {sum(weights).hex()}", flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="where checkpoints go")
    parser.add_argument("data", help="a file; its bytes are the tokens")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--plain", action="store_true", help="torch.save and fsync instead")
    return train(parser.parse_args())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except stoker.Error as error:
        sys.exit(f"gpt.py: {error}")
