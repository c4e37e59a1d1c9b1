from __future__ import annotations

import json
import subprocess
import sys


def test_ingestion_imports_no_model() -> None:
    code = (
        "import json, sys\n"
        "import forewarn.pipelines.collector.collector_service\n"
        "import forewarn.pipelines.ingest.host_file_ingest\n"
        "import forewarn.pipelines.config.settings\n"
        "print(json.dumps([m for m in sys.modules if m.startswith('forewarn.')]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = json.loads(run.stdout)
    models = {name for name in modules if name.startswith("forewarn.models.prediction.")}
    assert models == {"forewarn.models.prediction.model_names"}
    assert "forewarn.features.prediction.feature_extractor" not in modules
