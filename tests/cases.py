"""What test programs in Python share: the run of their tests."""
import os
import sys
import traceback


class Skip(Exception):
    """Raised by a test that cannot run here."""


def run(what, tests, behind=lambda: None):
    """Calls each, and `behind` after it, or those that PYTHON_TESTS names. Prints what fails and is skipped of
    `what`, and ends the program behind "N passed, N failed, N skipped"."""
    only = os.environ.get('PYTHON_TESTS', '').split()
    tests = [test for test in tests if not only or test.__name__ in only]
    failed, skipped = 0, 0
    for test in tests:
        try:
            test()
            behind()
        except Skip as e:
            skipped += 1
            print(f'skip {what} {test.__name__}: {e}')
        except Exception:                      # the tests that follow run, too
            failed += 1
            print(f'FAIL {what} {test.__name__}')
            traceback.print_exc(file=sys.stdout)
    print(f'{len(tests) - failed - skipped} passed, {failed} failed, {skipped} skipped')
    sys.exit(failed > 0)
