"""Makes the modules beside this file importable, also for the processes of the ranks."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
