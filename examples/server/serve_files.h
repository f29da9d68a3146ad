/* serve_files.h - the page: files of the folder --page

   serve_files.c owns which files are served, and as what. */
#ifndef SERVER_SERVE_FILES_H
#define SERVER_SERVE_FILES_H

#include "serve_http.h"

/* Names that begin with a dot are none. */
answer answer_file(struct MHD_Connection *c, const char *path);

#endif
