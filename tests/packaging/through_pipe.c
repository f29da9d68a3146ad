/* through_pipe.c - a pipe of Windows to a program: wine's PeekNamedPipe knows no others

       through_pipe.exe PROGRAM ARGUMENTS... <FILE

   Writes the file to the program's input, keeps that open until the program ends, and returns its
   code. Ctrl-C is for the program alone. */
#include <windows.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

static int fail(const char *what) {
    fprintf(stderr, "through_pipe: %s: error %lu\n", what, GetLastError());
    return 99;
}

/* Arguments without blanks and quotes. */
int main(void) {
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, 0, TRUE};
    STARTUPINFOW start;
    PROCESS_INFORMATION child;
    WCHAR *command = wcschr(GetCommandLineW(), L' ');
    HANDLE input;
    char bytes[4096];
    DWORD n, code;
    memset(&start, 0, sizeof start);
    start.cb = sizeof start;
    if (!CreatePipe(&start.hStdInput, &input, &inherited, 0)) return fail("CreatePipe");
    SetHandleInformation(input, HANDLE_FLAG_INHERIT, 0);
    start.dwFlags = STARTF_USESTDHANDLES;
    start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    while (command && *command == L' ') command++;
    if (!command || !CreateProcessW(0, command, 0, 0, TRUE, 0, 0, 0, &start, &child))
        return fail("CreateProcess");
    SetConsoleCtrlHandler(0, TRUE);    /* a child would inherit it */
    while (ReadFile(GetStdHandle(STD_INPUT_HANDLE), bytes, sizeof bytes, &n, 0) && n)
        if (!WriteFile(input, bytes, n, &n, 0)) return fail("WriteFile");
    WaitForSingleObject(child.hProcess, INFINITE);
    return GetExitCodeProcess(child.hProcess, &code) ? (int)code : fail("GetExitCodeProcess");
}
