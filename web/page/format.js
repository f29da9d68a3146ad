// format.js - numbers as the page shows them.

export const digits = (x, n) =>
    x.toLocaleString('en', { maximumFractionDigits: n, minimumFractionDigits: n });

export function bytes(n) {
    return n < 1e6
        ? `${digits(n / 1e3, 0)} KB`
        : n < 1e9
          ? `${digits(n / 1e6, n < 1e7 ? 1 : 0)} MB`
          : `${digits(n / 1e9, 2)} GB`;
}

export function speed(tokens, seconds) {
    if (!tokens || !(seconds > 0)) return '–';
    const rate = tokens / seconds;
    return `${digits(rate, rate < 100 ? 1 : 0)} tok/s`;
}

export function duration(s) {
    return s < 90
        ? `${Math.ceil(s)} s`
        : s < 5400
          ? `${Math.round(s / 60)} min`
          : `${digits(s / 3600, 1)} h`;
}

export const count = n =>
    n < 1e6
        ? digits(n, 0)
        : n < 1e9
          ? `${digits(n / 1e6, 1)} million`
          : `${digits(n / 1e9, 1)} billion`;

export const milliseconds = s => (s < 1 ? `${digits(s * 1e3, 0)} ms` : `${digits(s, 1)} s`);

export const plural = (n, word) => `${digits(n, 0)} ${word}${n === 1 ? '' : 's'}`;
