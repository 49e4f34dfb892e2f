/* SPDX-License-Identifier: Apache-2.0 */
/* What a card could do at best, by its name, and how much of that a training uses: model FLOP/s
 * utilisation (MFU). */
#ifndef MUSTER_MFU_H
#define MUSTER_MFU_H

/* Dense bf16 operations a second with fp32 sums, as the vendor's data sheet has them (half of what
 * it says "with sparsity"); 0 for a name that is not in the table. `name` is the driver's, such as
 * "NVIDIA H100 80GB HBM3". */
double mfu_peak_flops(const char *name);

/* Part of the peak of all cards together: tokens a second over all ranks, one card each; 0 where
 * the peak is not known. */
double mfu_of(double tokens_per_second, double token_flops, double peak, int cards);

#endif
