#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/torch-save.sh [--build DIR] [--cache DIR] [--dir DIR] [--threads N] [--saves N]
#     [--rounds N]
# What saving 2 GiB of a PyTorch training costs with the package muster, beside torch.save,
# PyTorch's asynchronous DCP in its three ways, torchsnapshot, DLRover, and one memcpy: the stall,
# the time until it is durable, the peak memory and a load. Options are those of checkpoint.sh,
# which it calls.
exec "$(dirname "${BASH_SOURCE[0]}")/checkpoint.sh" --only package --only torch --only dcp \
    --only clients "$@"
