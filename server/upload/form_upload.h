/* form_upload.h - uploads of a file in a form, which has more than the file's bytes.
 *
 * The file is staged and hashed as it comes, inspected when it is complete, then published as one
 * version, together with small files that belong to it. Only then are the tree and the path known.
 * The path must be free: a file there with the same bytes counts as the same file; one with other
 * bytes stays.
 *
 * owns     form_upload_close() frees it; what was not published is removed
 * threads  all block: pool threads, one call at a time
 * errors   as upload.h: a client's error is a status in the reply; the form upload must then not be
 *          used any more
 */
#ifndef SERVER_UPLOAD_FORM_UPLOAD_H
#define SERVER_UPLOAD_FORM_UPLOAD_H

#include "server/store/blob.h"
#include "server/upload/upload.h"

struct form_upload;
/* p: repo, note, max_bytes; copied. */
struct form_upload *form_upload_open(struct uploads *u, const struct put *p);
/* Takes the file's next bytes: 413, 507. */
MUST_USE int form_upload_write(struct form_upload *k, struct slice bytes, struct upload_reply *out,
                               struct err *e);
uint64_t form_upload_bytes(const struct form_upload *k);
const struct digest *form_upload_digest(struct form_upload *k); /* no more bytes may come */
/* A handle to read the file. An empty file cannot be read: E_INVALID. */
MUST_USE int form_upload_look(struct form_upload *k, struct blob **out, struct err *e);

struct form_upload_beside { /* a small file that is published together with it */
    struct slice path, bytes;
};
/* 201; 200: it exists with these bytes; 409: it exists with others; 410, 507. */
MUST_USE int form_upload_publish(struct form_upload *k, struct slice tree, struct slice path,
                                 const struct form_upload_beside *beside, size_t count,
                                 uint64_t now_unix_s, struct upload_reply *out, struct err *e);
void form_upload_close(struct form_upload **kp); /* NULL is fine */

#endif
