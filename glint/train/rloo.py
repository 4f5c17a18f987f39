"""Reinforcement learning with executable rewards: sample a group, run it, raise the probability of what did better than its siblings.

Where the published recipe departs from the textbook (each is a switch of the config): it samples at 0.35 but scores at temperature 1;
masks control ids only while sampling; divides by length; ends a sample as soon as it parses; scores no KL; skips groups without spread.
"""

import copy
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from glint.asking import Task, judged, read_tasks
from glint.config.rl import RLJob, RLRecipe
from glint.device import peak_mib, prepare
from glint.files import read_json, read_parquet, write_json, write_lines, write_parquet
from glint.generate import Completion, draw_uniforms, generate
from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.randomness import rng, torch_generator
from glint.tasks.tokenizer import encode
from glint.train.batches import IGNORED, next_token_batch, pack, rounded_layout
from glint.train.objective import advantages, kl_k3, policy_loss, scores, token_log_probs
from glint.train.optimiser import AdamW, adamw
from glint.train.pretrain import read_rows
from glint.train.progress import Progress, receipt
from glint.train.state import SAVE_EVERY_SECONDS, StateStore
from glint.verify import Verdict, Verifier


def ordered_prompts(tasks: list[Task], groups: int, seed: int) -> list[Task]:
    """Return the first `groups` of the tasks in an order shuffled by the seed; raises ValueError where there are fewer."""
    if groups > len(tasks):
        families = ", ".join(dict.fromkeys(task.family for task in tasks))
        raise ValueError(f"rl.groups {groups} exceeds the {len(tasks)} RL tasks of {families}")
    order = rng(seed, "rl", "order").permutation(len(tasks))
    return [tasks[place] for place in order[:groups]]


def reward_of(verdict: Verdict, recipe: RLRecipe) -> float:
    """Return what a verdict is worth; `error` never gets here, the verifier raises."""
    worth = recipe.reward
    if verdict.verdict == "invalid":
        return worth.invalid
    if recipe.reward.kind == "fraction":
        return worth.failed + (worth.passed - worth.failed) * verdict.passed / verdict.total
    return worth.passed if verdict.verdict == "passed" else worth.failed


class GroupTrainer:
    """Policy, optimiser and position of one RL run."""

    def __init__(self, job: RLJob, start: Path, examples: Path, tokens: Path) -> None:
        self.job, self.start = job, start
        recipe = job.rl
        self.device, self.dtype = prepare(job.execution)
        self.policy = checkpoint.load([start], self.device, self.dtype).freeze(recipe.scope)
        self.reference = copy.deepcopy(self.policy).freeze() if recipe.kl.weight else None
        self.optimiser = self._optimiser()
        tasks = read_tasks(examples, "rl", recipe.families, recipe.tasks_per_family)
        self.tasks = ordered_prompts(tasks, recipe.groups, job.seed)
        self.replay = _replay_rows(examples, tokens, recipe) if recipe.replay.weight else []
        self.group = 0
        self.seconds = 0.0
        self.metrics: list[dict[str, Any]] = []
        self.rollouts: list[dict[str, Any]] = []

    def _optimiser(self) -> AdamW:
        recipe = self.job.rl
        named = self.policy.trainable()
        head = [parameter for name, parameter in named.items() if name == self.policy.head_name]
        rest = [parameter for name, parameter in named.items() if name != self.policy.head_name]
        groups: list[dict[str, Any]] = [{"params": rest, "lr": recipe.lr}, {"params": head, "lr": recipe.lr * recipe.head_lr_factor}]
        return adamw([group for group in groups if group["params"]], recipe.lr, recipe.betas, recipe.weight_decay, self.device)

    def advance(self, verifier: Verifier) -> None:
        """Sample, judge and learn from the next group."""
        began = time.perf_counter()
        recipe, task = self.job.rl, self.tasks[self.group]
        completions = self.sample(task)
        verdicts = verifier.judge([task.candidate(completion.ids) for completion in completions])
        rewards_G = np.array([reward_of(verdict, recipe) for verdict in verdicts])
        credited_G = self._credit(rewards_G)
        advantages_G = advantages(torch.tensor(credited_G, dtype=torch.float32), recipe)
        has_spread = bool(credited_G.max() > credited_G.min())
        update = self.update(task, completions, advantages_G) if has_spread or recipe.zero_spread == "update" else None
        self.seconds += time.perf_counter() - began
        self._record(task, completions, verdicts, rewards_G, credited_G, advantages_G, update)
        self.group += 1

    def sample(self, task: Task) -> list[Completion]:
        """Return the group's completions; each group draws from a generator of its own, each sample from its own row."""
        recipe = self.job.rl
        uniforms = draw_uniforms(recipe.group_size, recipe.max_new_tokens, torch_generator(self.job.seed, "rl", "sample", self.group))
        stop = {"is_complete": lambda _, ids: task.is_complete(ids)} if recipe.stop == "parses" else {}
        with torch.no_grad():
            (group,) = generate(
                self.policy, [encode(task.prompt)], [uniforms], recipe.max_new_tokens, temperature=recipe.temperature, **stop
            )
        return group

    def _credit(self, rewards_G: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if not self.job.rl.shuffle_rewards:
            return rewards_G
        return rng(self.job.seed, "rl", "shuffle", self.group).permutation(rewards_G)

    def update(self, task: Task, completions: list[Completion], advantages_G: Tensor) -> dict[str, Any]:
        """Take one optimiser step; return loss, KL, gradient norm and the samples' scores."""
        recipe = self.job.rl
        responses = [completion.ids for completion in completions]
        log_probs_N = self.log_probs(self.policy, task, responses)
        scores_G = scores(log_probs_N, list(map(len, responses)), recipe.length)
        loss = policy_loss(scores_G, advantages_G.to(self.device))
        kl = self._divergence(task, responses, log_probs_N)
        self.optimiser.zero_grad()
        (loss + recipe.kl.weight * kl + recipe.replay.weight * self._replay_loss()).backward()
        norm = clip_grad_norm_(self.policy.trainable().values(), recipe.clip)
        if not bool(torch.isfinite(norm)):
            raise ValueError(f"group {self.group} of seed {self.job.seed}: the gradient norm is {norm.item()}; lower rl.lr")
        self.optimiser.step()
        return {"loss": loss.item(), "kl": kl.item(), "grad_norm": norm.item(), "scores": scores_G.tolist()}

    def log_probs(self, model: Decoder, task: Task, responses: list[list[int]]) -> Tensor:
        """Return log p of every response token, packed; the prompt is computed once for all rows.

        A token is predicted at the position before it: the first token of a response by the last token of the prompt.
        """
        prompt = encode(task.prompt)
        layout = rounded_layout(list(map(len, responses)), self.dtype, model.recipe.context, len(prompt))
        ids_N = torch.cat([torch.tensor(prompt), pack(responses, layout)]).to(self.device)
        hidden = model(ids_N, layout, head_only=self.job.rl.tied_gradient == "head_only")
        starts = [end + 1 - length for end, length in zip(layout.last_tokens, layout.lengths, strict=True)]
        before = [[layout.prompt - 1, *range(start, start + len(row) - 1)] for start, row in zip(starts, responses, strict=True)]
        predicting = torch.tensor([place for row in before for place in row], device=self.device)
        sampled = torch.tensor([token for row in responses for token in row], device=self.device)
        return token_log_probs(model.logits(hidden.final_ND.index_select(0, predicting)), sampled, self.job.rl)

    def _divergence(self, task: Task, responses: list[list[int]], log_probs_N: Tensor) -> Tensor:
        if self.reference is None:
            return log_probs_N.new_zeros(())
        with torch.no_grad():
            start_N = self.log_probs(self.reference, task, responses)
        return kl_k3(log_probs_N, start_N)

    def _replay_loss(self) -> Tensor | float:
        if not self.replay:
            return 0.0
        chosen = rng(self.job.seed, "rl", "replay", self.group).choice(len(self.replay), self.job.rl.replay.rows, replace=False)
        inputs_N, targets_N, layout = next_token_batch([self.replay[place] for place in chosen], self.dtype, self.policy.recipe.context)
        hidden = self.policy(inputs_N.to(self.device), layout, head_only=self.job.rl.tied_gradient == "head_only")
        return cross_entropy(self.policy.logits(hidden.final_ND), targets_N.to(self.device), ignore_index=IGNORED)

    def _record(
        self,
        task: Task,
        completions: list[Completion],
        verdicts: list[Verdict],
        rewards_G: np.ndarray[Any, Any],
        credited_G: np.ndarray[Any, Any],
        advantages_G: Tensor,
        update: dict[str, Any] | None,
    ) -> None:
        for sample, (completion, verdict) in enumerate(zip(completions, verdicts, strict=True)):
            self.rollouts.append(
                {
                    "group": self.group,
                    "prompt_index": task.index,
                    "family": task.family,
                    "identity": task.identity,
                    "sample": sample,
                    **judged(completion.ids, completion.ended, verdict),
                    "reward": float(rewards_G[sample]),
                    "credited_reward": float(credited_G[sample]),
                    "advantage": float(advantages_G[sample]),
                    "log_prob": update["scores"][sample] if update else None,
                }
            )
        kinds = [verdict.verdict for verdict in verdicts]
        self.metrics.append(
            {
                "group": self.group,
                "family": task.family,
                "reward_mean": float(rewards_G.mean()),
                "exact": kinds.count("passed"),
                "invalid": kinds.count("invalid"),
                "spread": float(credited_G.max() - credited_G.min()),
                "updated": update is not None,
                "loss": update["loss"] if update else None,
                "kl": update["kl"] if update else None,
                "grad_norm": update["grad_norm"] if update else None,
                "seconds": self.seconds,
            }
        )

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs."""
        return {
            "trained": {name: parameter.detach() for name, parameter in self.policy.trainable().items()},
            "optimiser": self.optimiser.state_dict(),
            "records": {"metrics": self.metrics, "rollouts": self.rollouts},
            "counts": {"group": self.group, "seconds": self.seconds},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state` has returned."""
        with torch.no_grad():
            for name, parameter in self.policy.trainable().items():
                parameter.copy_(state["trained"][name])
        self.optimiser.load_state_dict(state["optimiser"])
        self.metrics, self.rollouts = state["records"]["metrics"], state["records"]["rollouts"]
        self.group, self.seconds = state["counts"]["group"], state["counts"]["seconds"]


def _replay_rows(examples: Path, tokens: Path, recipe: RLRecipe) -> list[NDArray[np.uint16]]:
    """Return the pretraining rows of the replayed families: those named, else those that RL does not train."""
    table = read_parquet(examples)
    families = table.loc[table["split"] == "pretrain", "family"]
    wanted = families.isin(recipe.replay.families) if recipe.replay.families else ~families.isin(recipe.families)
    rows = [row for row, kept in zip(read_rows(tokens, 2**31), wanted, strict=True) if kept]
    if len(rows) < recipe.replay.rows:
        raise ValueError(f"rl.replay.rows {recipe.replay.rows} exceeds the {len(rows)} pretraining rows of the replayed families")
    return rows


def group_name(groups: int) -> str:
    """Return the folder name of an RL checkpoint."""
    return f"groups-{groups:03d}"


def train(
    job: RLJob,
    pretrained: Path,
    selection: Path,
    examples: Path,
    tokens: Path,
    out: Path,
    state: Path,
    save_every: float = SAVE_EVERY_SECONDS,
) -> None:
    """Train all groups from the selected checkpoint, resuming from `state`; write checkpoints, rollouts, metrics and receipt to `out`.

    The state is saved every `save_every` seconds.
    Raises ValueError where the start is missing or damaged, or the gradient stops being finite, VerifierError where the sandbox fails.
    """
    start = pretrained / read_json(selection)["checkpoint"]
    with StateStore(state, save_every) as store, Verifier() as verifier:
        trainer = GroupTrainer(job, start, examples, tokens)
        saved = store.load()
        if saved is not None:
            trainer.restore(saved)
        progress = Progress("group", job.rl.groups, trainer.group)
        while trainer.group < job.rl.groups:
            trainer.advance(verifier)
            if trainer.group in job.rl.checkpoints():
                checkpoint.save(trainer.policy, out / group_name(trainer.group), base=start)
            last = trainer.metrics[-1]
            progress.report(trainer.group, f"{last['family']}: {last['exact']} exact, {last['invalid']} invalid of {job.rl.group_size}")
            store.offer(trainer.state, trainer.group)
    _finish(trainer, out)


def _finish(trainer: GroupTrainer, out: Path) -> None:
    write_lines(out / "metrics.jsonl", trainer.metrics)
    write_parquet(out / "rollouts.parquet", pd.DataFrame(trainer.rollouts))
    trained = sum(parameter.numel() for parameter in trainer.policy.trainable().values())
    facts = {"trainable_parameters": trained, "peak_mib": round(peak_mib(trainer.device), 1)}
    write_json(out / "receipt.json", receipt(trainer.device, trainer.dtype, trainer.seconds, **facts))
