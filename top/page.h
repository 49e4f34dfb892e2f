/* SPDX-License-Identifier: Apache-2.0 */
/* A view as lines of text. Nothing in them controls a terminal, whatever the run's directory
 * holds. */
#ifndef MUSTER_PAGE_H
#define MUSTER_PAGE_H

#include <stddef.h>
#include <stdio.h>

#include "top/view.h"

#define PAGE_LABEL 12       /* columns before the text of a figure */
#define PAGE_LINE_SIZE 2000 /* no line is longer, in bytes */

/* Prints the figures of the run, a line each, none wider than `columns`. */
void page_figures(const struct view *view, int columns, FILE *out);

/* Draws the loss in so many rows; prints nothing where fewer than two steps have one, or there is
 * too little room. */
void page_curve(const struct view *view, int columns, int rows, FILE *out);

/* A sentence about the records that the table is made of; "" where there is nothing to say. */
void page_note(const struct view *view, char *out, size_t size);

/* The columns that the names of nodes take. */
int page_node_width(const struct view *view);

/* The title of the table of ranks, and a row of it, at most so many columns wide. ">" marks a rank
 * that holds others up, "." one that waits. */
void page_title(int node_width, int columns, char *out, size_t size);
void page_rank(const struct view_rank *rank, int node_width, int columns, char *out, size_t size);

#endif
