#include "agent/job/record.h"

#include <glob.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/codec/url.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

void record_write(const char *folder, const struct record *r)
{
    char *why_failed = mem_strdup(r->why);
    json_t *o;
    char *text;
    char path[PATH_MAX];
    struct newfile *f = NULL;
    struct err why;

    url_hide_queries(why_failed);
    o = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:I}", "job", r->job, "phase", r->phase,
                  "result", r->rc == 0 ? "ok" : err_name(r->rc), "why", why_failed, "exit_code",
                  r->exit_code, "restarts", (int)r->restarts, "began", (json_int_t)r->began_unix_s,
                  "ended", (json_int_t)clock_unix_s());
    text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    snprintf(path, sizeof path, "%s/result.json", folder);
    /* Why something failed is in the words of whoever it was: for the job's user alone. */
    if (text == NULL || newfile_open(path, r->why[0] != '\0' ? 0600 : 0644, &f, &why) != 0) {
        log_warn("job.record", "path=%s the record of the job could not be written", path);
    } else {
        newfile_write(f, text, strlen(text));
        newfile_write(f, "\n", 1);
        if (newfile_commit(&f, &why) != 0) {
            log_warn("job.record", "%s", why.text);
        }
    }
    free(text);
    free(why_failed);
    json_decref(o);
}

static void print_one(const json_t *o)
{
    time_t ended = (time_t)json_integer_value(json_object_get(o, "ended"));
    const char *job = json_string_value(json_object_get(o, "job"));
    const char *result = json_string_value(json_object_get(o, "result"));
    const char *phase = json_string_value(json_object_get(o, "phase"));
    const char *why = json_string_value(json_object_get(o, "why"));
    char when[32] = "";
    struct tm tm;

    if (job != NULL && result != NULL && phase != NULL && why != NULL &&
        localtime_r(&ended, &tm) != NULL) {
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
        printf("%-8s %-24s %s  %s%s%s%s%s\n", "job", job, when, result,
               why[0] != '\0' ? " in " : "", why[0] != '\0' ? phase : "",
               why[0] != '\0' ? ": " : "", why);
    }
}

void records_print(const struct agent *a)
{
    char pattern[PATH_MAX];
    json_t *all = json_array();
    glob_t found = {0};

    snprintf(pattern, sizeof pattern, "%s/jobs/*/result.json", a->state_dir);
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            json_t *o = json_load_file(found.gl_pathv[i], 0, NULL);
            if (json_is_object(o)) {
                json_array_append(all, o);
            }
            json_decref(o);
        }
    }
    globfree(&found);
    if (a->json) {
        fputs(",\"jobs\":", stdout);
        json_dumpf(all, stdout, JSON_COMPACT);
    } else {
        for (size_t i = 0; i < json_array_size(all); i++) {
            print_one(json_array_get(all, i));
        }
    }
    json_decref(all);
}
