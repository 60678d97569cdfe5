/* synced.h - the layout of a Hub's repositories in a synced tree (docs/decisions/0011), and the
 * answers from there.
 *
 *   {type}/{id}@{revision}/info.json    the Hub's document on the revision, without counters
 *   {type}/{id}@{revision}/tree.json    its listing, all pages as one array
 *   {type}/{id}@{revision}/files/...    the files
 *   {type}/{id}@{commit}                a link to the folder
 *
 * A '/' in a revision is written %2F, a '%' %25.
 *
 * owns     nothing: results are in the request's arena
 * threads  any; no I/O
 */
#ifndef SERVER_REPO_HF_SYNCED_H
#define SERVER_REPO_HF_SYNCED_H

#include "server/repo/hf/hf.h"

/* "datasets/owner/name@revision", as in a setting; slices of the text, or static. */
struct hf_spec {
    struct slice type, prefix, id, rev;
};
MUST_USE bool hf_spec_parse(struct slice text, struct hf_spec *out);
/* Appends the folder's path, without a trailing '/'. */
void hf_folder(struct slice type, struct slice id, struct slice rev, struct buf *out);

/* As access_commit(), access_manifest() and the file's plan, from the published tree. */
bool synced_commit(struct hf_ask *k);
bool synced_manifest(struct hf_ask *k, struct manifest *m);
bool synced_file(struct hf_ask *k, struct slice path);
/* True: the route was answered here. */
bool synced_route(struct hf_ask *k);

#endif
