"""For those who post their experiments: a picture and a summary of every study."""

from pathlib import Path

from glint.config.share import ShareJob
from glint.files import replacing, write_text
from glint.report.findings import find
from glint.report.results import Results
from glint.report.share_image import draw
from glint.report.summary import summarise


def share(job: ShareJob, tables: Path, claims: Path, out: Path) -> None:
    """Write `<study>.png` and `<study>.md` of every study into the folder `out`, from the folder `tables` and the table `claims`."""
    results = Results(tables, claims)
    for study in job.config.studies:
        finding = find(job.config, results, study)
        write_text(out / f"{study}.md", summarise(job.config, finding, job.command))
        with replacing(out / f"{study}.png") as temporary:
            temporary.write_bytes(draw(finding, job.config.run))
