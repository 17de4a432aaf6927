/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plots as SVG, small enough to be read: a frame, a scale of round numbers, bars or
 * lines, names. No style sheet and no script, so that every viewer shows the same. One
 * thread.
 */
#include "svg.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WIDTH 800.0
#define LEFT 90.0
#define TOP 48.0
#define BAR_STEP 30.0
#define LINES_HEIGHT 320.0
#define LEGEND_WIDTH 190.0
#define TICKS 5
#define SPREAD_MAX 30 /* of the x values' range to their least step, for a scale of numbers */

static const char *const colors[] = {
    "#1b6ca8", "#d1495b", "#2e933c", "#edae49", "#6a4c93", "#00798c", "#8d5524", "#ff7f51",
    "#5f6c7b", "#a1c349", "#b5179e", "#457b9d", "#222222", "#c77dff", "#7f5539", "#38b000"};

/* Text in which nothing is markup. */
static void
put_text(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            (void)fputs("&lt;", to);
        else if (*text == '&')
            (void)fputs("&amp;", to);
        else
            (void)fputc(*text, to);
    }
}

/* A label: anchor is "start", "middle" or "end". */
static void
put_label(FILE *to, double x, double y, const char *anchor, const char *text)
{
    (void)fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    put_text(to, text);
    (void)fputs("</text>\n", to);
}

static void
put_line(FILE *to, const double from[2], const double end[2], const char *style)
{
    (void)fprintf(to, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", from[0],
                  from[1], end[0], end[1], style);
}

static void
begin(FILE *to, double height, const char *title)
{
    (void)fprintf(to,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
                  "<text x=\"%.0f\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">",
                  WIDTH, height, WIDTH / 2);
    put_text(to, title);
    (void)fputs("</text>\n", to);
}

static int
end(FILE *to)
{
    int error;

    (void)fputs("</svg>\n", to);
    error = ferror(to) ? EIO : 0;
    if (fflush(to) && !error)
        error = errno;
    /* What was there may have been longer; what has no position is no file. */
    long length = ftell(to);
    if (!error && length >= 0 && ftruncate(fileno(to), length) && errno != EINVAL)
        error = errno;
    if (fclose(to) && !error)
        error = errno;
    errno = error;
    return error ? -1 : 0;
}

static double
largest(const struct cli_svg_plot *plot, double at_least)
{
    double most = at_least;

    for (size_t s = 0; s < plot->n_series; s++)
        for (size_t i = 0; i < plot->n_points; i++)
            most = fmax(most, plot->series[s].values[i]);
    return most > 0 ? most : 1;
}

/* The smallest of 1, 2, 5, 10, 20, ... of which TICKS reach the most. */
static double
tick_step(double most)
{
    double power = pow(10, floor(log10(most / TICKS)));
    double unit = most / TICKS / power;

    return power * (unit <= 1 ? 1 : unit <= 2 ? 2 : unit <= 5 ? 5 : 10);
}

int
cli_svg_bars(FILE *to, const struct cli_svg_plot *plot, double bound)
{
    const double left = LEFT + 80;
    double most = largest(plot, bound);
    double scale = (WIDTH - left - 90) / most;
    double bottom = TOP + BAR_STEP * (double)plot->n_points;

    begin(to, bottom + 48, plot->title);
    for (unsigned tick = 0; tick * tick_step(most) <= most; tick++) {
        double value = tick * tick_step(most);
        char text[32];

        (void)snprintf(text, sizeof(text), "%.6g", value);
        put_line(to, (double[]){left + value * scale, TOP},
                 (double[]){left + value * scale, bottom}, "stroke=\"#dddddd\"");
        put_label(to, left + value * scale, bottom + 16, "middle", text);
    }
    for (size_t i = 0; i < plot->n_points; i++) {
        double value = plot->series[0].values[i];
        double y = TOP + BAR_STEP * (double)i;
        char text[32];

        put_label(to, left - 8, y + 18, "end", plot->x_names[i]);
        if (value >= 0)
            (void)fprintf(to,
                          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" "
                          "fill=\"%s\"/>\n",
                          left, y + 4, value * scale, BAR_STEP - 10, colors[0]);
        (void)snprintf(text, sizeof(text), value >= 1000 ? "%.0f" : "%.4g", value);
        put_label(to, left + fmax(value, 0) * scale + 6, y + 18, "start",
                  value >= 0 ? text : "does not fit");
    }
    if (bound >= 0) {
        double x = left + bound * scale;

        put_line(to, (double[]){x, TOP - 4}, (double[]){x, bottom},
                 "stroke=\"#d1495b\" stroke-width=\"1.5\" stroke-dasharray=\"5 3\"");
        put_label(to, x, TOP - 8, "middle", "bound");
    }
    put_label(to, (left + WIDTH - 90) / 2, bottom + 36, "middle", plot->y_label);
    return end(to);
}

/* Where the points are from left to right, 0 .. 1: by their values where all names are
 * numbers, rising, and none would come too close to another; else evenly. */
static void
place_points(const struct cli_svg_plot *plot, double *places)
{
    double step = (double)INFINITY;
    double first;
    double range;

    if (plot->n_points == 0)
        return;
    for (size_t i = 0; i < plot->n_points; i++) {
        char *end;

        places[i] = strtod(plot->x_names[i], &end);
        if (*end || end == plot->x_names[i] || !isfinite(places[i]))
            step = 0;
        if (i > 0)
            step = fmin(step, places[i] - places[i - 1]);
    }
    first = places[0];
    range = plot->n_points > 1 ? places[plot->n_points - 1] - first : 0;
    for (size_t i = 0; i < plot->n_points; i++) {
        if (range > 0 && step * SPREAD_MAX >= range)
            places[i] = (places[i] - first) / range;
        else
            places[i] = plot->n_points > 1 ? (double)i / (double)(plot->n_points - 1) : 0.5;
    }
}

static void
put_series(FILE *to, const struct cli_svg_plot *plot, size_t s, double scale, const double *places)
{
    double bottom = TOP + LINES_HEIGHT;
    double width = WIDTH - LEFT - LEGEND_WIDTH;
    const char *color = colors[s % (sizeof(colors) / sizeof(colors[0]))];

    (void)fprintf(to, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", color);
    for (size_t i = 0; i < plot->n_points; i++)
        if (plot->series[s].values[i] >= 0)
            (void)fprintf(to, "%.1f,%.1f ", LEFT + width * places[i],
                          bottom - plot->series[s].values[i] * scale);
    (void)fputs("\"/>\n", to);
    for (size_t i = 0; i < plot->n_points; i++)
        if (plot->series[s].values[i] >= 0)
            (void)fprintf(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                          LEFT + width * places[i], bottom - plot->series[s].values[i] * scale,
                          color);
    (void)fprintf(to, "<rect x=\"%.0f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n",
                  WIDTH - LEGEND_WIDTH + 20, TOP + 20 * (double)s, color);
    put_label(to, WIDTH - LEGEND_WIDTH + 38, TOP + 20 * (double)s + 11, "start",
              plot->series[s].name);
}

static void
put_scale(FILE *to, double most, double scale)
{
    double bottom = TOP + LINES_HEIGHT;
    double step = tick_step(most);

    for (unsigned tick = 0; tick * step <= most * 1.0001; tick++) {
        double value = tick * step;
        double y = bottom - value * scale;
        char text[32];

        (void)snprintf(text, sizeof(text), "%.6g", value);
        put_line(to, (double[]){LEFT, y}, (double[]){WIDTH - LEGEND_WIDTH, y},
                 "stroke=\"#dddddd\"");
        put_label(to, LEFT - 8, y + 4, "end", text);
    }
}

int
cli_svg_lines(FILE *to, const struct cli_svg_plot *plot)
{
    double most =
        tick_step(largest(plot, 0)) * ceil(largest(plot, 0) / tick_step(largest(plot, 0)));
    double scale = LINES_HEIGHT / most;
    double bottom = TOP + LINES_HEIGHT;
    double width = WIDTH - LEFT - LEGEND_WIDTH;
    double places[CLI_SVG_POINTS_MAX];

    place_points(plot, places);
    begin(to, bottom + 52, plot->title);
    put_scale(to, most, scale);
    for (size_t i = 0; i < plot->n_points; i++)
        put_label(to, LEFT + width * places[i], bottom + 18, "middle", plot->x_names[i]);
    for (size_t s = 0; s < plot->n_series; s++)
        put_series(to, plot, s, scale, places);
    put_label(to, LEFT + width / 2, bottom + 40, "middle", plot->x_label);
    put_label(to, LEFT - 40, TOP - 12, "start", plot->y_label);
    return end(to);
}
