"""The image branch, by hand: the form of NVIDIA's `add_sub` example, a loop over the requests."""

from __future__ import annotations

import json

import steps
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        score = pb_utils.get_output_config_by_name(config, "score")
        self.dtype = pb_utils.triton_string_to_numpy(score["data_type"])

    def execute(self, requests):
        responses = []
        for request in requests:
            image = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
            score = steps.score_image(image)["score"]
            output = pb_utils.Tensor("score", score[:, None].astype(self.dtype, copy=False))
            responses.append(pb_utils.InferenceResponse(output_tensors=[output]))
        return responses
