/* profile.h - what the threads do while the network runs, by its parts

   A step is shared out in runs. Each thread logs its own runs; when no thread works any more, the
   logs are added up:

       caller   |= run =|= run =|        |= run =|
       worker     |===== run =====|      |== run ==|
                 <----- step -----> rest <-- step -->

   A thread waits while a step goes on and it has no run. In the rest only the caller works. */
#ifndef BENCH_PROFILE_H
#define BENCH_PROFILE_H

#include "../../bitnet.h"

void measure_profile(const bitnet_model *m, int n_threads, int rounds);
/* Of the median round: milliseconds for each token that is written, for a whole prompt, or for each
   pass of sequences that write together; and their shares. */
void report_profile(int rounds);

#endif
