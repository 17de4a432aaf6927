/* SPDX-License-Identifier: Apache-2.0 */
/* Two plots as SVG: bars with a bound, and lines over a swept value. */
#ifndef CLI_SVG_H
#define CLI_SVG_H

#include <stddef.h>
#include <stdio.h>

#define CLI_SVG_SERIES_MAX 16
#define CLI_SVG_POINTS_MAX 64

/* A named sequence of values; a negative one is left out. Borrowed. */
struct cli_svg_series {
    const char *name;
    const double *values;
};

struct cli_svg_plot {
    const char *title;
    const char *x_label;
    const char *y_label;
    const char *const *x_names; /* of the n points */
    size_t n_points;            /* 1 .. CLI_SVG_POINTS_MAX */
    const struct cli_svg_series *series;
    size_t n_series; /* 1 .. CLI_SVG_SERIES_MAX */
};

/* Bars: one series, a bar per point, and the bound as a line across (not drawn when
 * negative). Replaces what the file has, and closes it. Returns 0, or -1 with errno set
 * where the file cannot be written. */
int
cli_svg_bars(FILE *to, const struct cli_svg_plot *plot, double bound);

/* Lines: a line per series over the points, which are placed by value where their names
 * are rising numbers and none comes too close to another, else evenly. */
int
cli_svg_lines(FILE *to, const struct cli_svg_plot *plot);

#endif
