/* filter_takes.c - rules as arguments, paths as lines (folders end in '/', before what is in them):
 * prints those that are in. */
#include <stdio.h>

#include "common/codec/filter.h"

enum { OUT_MAX = 10000 };

int main(int argc, char **argv)
{
    static char out[OUT_MAX][512]; /* folders that are out */
    struct filter f = {.count = 0};
    struct err e = {0};
    size_t outs = 0;
    char line[512];

    for (int i = 1; i < argc; i++) {
        if (filter_add_own(&f, slice_str(argv[i]), &e) != 0) {
            fprintf(stderr, "%s\n", e.text);
            return 78;
        }
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        struct slice path = slice_str(line);
        bool folder, under = false;
        path.n -= path.n > 0 && path.p[path.n - 1] == '\n';
        folder = path.n > 0 && path.p[path.n - 1] == '/';
        for (size_t i = 0; i < outs && !under; i++) {
            under = slice_starts(path, slice_str(out[i]));
        }
        path.n -= folder;
        if (!under && filter_takes(&f, path, folder)) {
            printf(SLICE_FMT "\n", SLICE_ARG(path));
        } else if (folder && outs < OUT_MAX) {
            snprintf(out[outs++], sizeof out[0], SLICE_FMT "/", SLICE_ARG(path));
        }
    }
    filter_fini(&f);
    return 0;
}
