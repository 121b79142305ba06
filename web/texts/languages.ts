/** The languages of the console: their tables, which one a browser gets, and how they write numbers and times. */
import type { JobKind, JobStatus } from '../../src/jobs/job.ts'
import type { Action } from '../../src/operators/activity.ts'
import type { Reason } from '../../src/watch/account-status.ts'
import type { NotificationKind } from '../../src/watch/notifications/content.ts'
import problems from '../../src/watch/problem-texts.en.json' with { type: 'json' }
import type { ProblemTexts } from '../../src/watch/problem-texts.ts'
import { serverNowMs } from '../clock.ts'
import en from './en.json' with { type: 'json' }

/** English is the source: each other table has exactly its texts. The service has those of problems, which it sends, too. */
export type Texts = typeof en & ProblemTexts

export const english: Texts = { ...en, ...problems } satisfies {
  notifications: { kinds: Record<NotificationKind, string> }
  activity: { actions: Record<Action, string> }
  reasons: Record<Reason, string>
  problems: Record<Reason, object>
  jobs: { kinds: Record<JobKind, string>; states: Record<JobStatus, string> }
}

/** Both are requested at the same time. */
async function tableOf<A, B>(page: Promise<{ default: A }>, problem: Promise<{ default: B }>) {
  const [ofPage, ofProblem] = await Promise.all([page, problem])
  return { ...ofPage.default, ...ofProblem.default }
}

/** Each language by its tag. A page loads only the table that it shows, and English, which needs no further request. */
const TABLES = {
  en: async () => english,
  ja: () => tableOf(import('./ja.json'), import('../../src/watch/problem-texts.ja.json')),
  th: () => tableOf(import('./th.json'), import('../../src/watch/problem-texts.th.json')),
  'zh-Hant-TW': () => tableOf(import('./zh.json'), import('../../src/watch/problem-texts.zh.json')),
} satisfies Record<string, () => Promise<Texts>>
export type Language = keyof typeof TABLES

export const LANGUAGE_NAMES: Record<Language, string> = {
  en: 'English',
  ja: '日本語',
  th: 'ไทย',
  'zh-Hant-TW': '繁體中文',
}

export const isLanguage = (value: unknown): value is Language => Object.hasOwn(TABLES, value as string)

/** Returns the first supported language. Readers of simplified Chinese get the next language that their browser lists. */
export function languageOf(tags: readonly string[]): Language {
  for (const tag of tags) {
    const { language, script } = new Intl.Locale(tag).maximize()
    // Hong Kong and Macao write traditional Chinese, too.
    const wanted = script === 'Hant' ? 'zh-Hant-TW' : language
    if (isLanguage(wanted)) return wanted
  }
  return 'en'
}

export type Localized = ReturnType<typeof localize>

const UNITS = [
  ['year', 365 * 86_400],
  ['month', 30 * 86_400],
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
] as const

/** Rejects if the table cannot be loaded, such as after an upgrade, which renames the files. */
export const loadLanguage = async (language: Language): Promise<Localized> =>
  localize(language, await TABLES[language]())

export function localize(language: Language, t: Texts) {
  // For Intl: Gregorian years and Western digits, as in the service's output. The default for Thai is Buddhist years.
  const locale = `${language}-u-ca-gregory-nu-latn`
  const number = new Intl.NumberFormat(locale)
  const short = new Intl.NumberFormat(locale, { notation: 'compact', maximumFractionDigits: 1 })
  const signed = new Intl.NumberFormat(locale, { signDisplay: 'exceptZero' })
  const percent = new Intl.NumberFormat(locale, { style: 'percent', maximumFractionDigits: 0 })
  const relative = new Intl.RelativeTimeFormat(locale, { numeric: 'always', style: 'narrow' })
  const dateTime = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'medium' })
  const date = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeZone: 'UTC' })
  const clock = new Intl.DateTimeFormat(locale, { timeStyle: 'medium' })
  return {
    language,
    locale,
    t,
    /** `1,234` */
    number: (value: number) => number.format(value),
    /** `1.2K`, for narrow cells */
    short: (value: number) => short.format(value),
    /** `+12` */
    signed: (value: number) => signed.format(value),
    percent: (share: number) => percent.format(share),
    /** `4 minutes`, rounded up. Below two hours, minutes say more. */
    duration: (seconds: number) => {
      const [unit, size] = UNITS.find(([, length]) => seconds >= 2 * length) ?? ['second', 1]
      const format = new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay: 'long' })
      return format.format(Math.max(1, Math.ceil(seconds / size)))
    },
    /** `3 minutes ago`, `in 2 days` */
    relative: (iso: string, now = serverNowMs()) => {
      const seconds = (Date.parse(iso) - now) / 1000
      const [unit, size] = UNITS.find(([, length]) => Math.abs(seconds) >= length) ?? ['second', 1]
      // The service's clock is read to the second, so what just happened is up to a second ahead: `-0` is "0 seconds ago".
      return relative.format(Math.trunc(seconds / size) || -0, unit)
    },
    /** date and time in the zone of the browser */
    dateTime: (iso: string) => dateTime.format(new Date(iso)),
    /** the UTC date of the time, because a day of LINE has the same date in every time zone */
    date: (iso: string) => date.format(new Date(iso)),
    clock: (iso: string) => clock.format(new Date(iso)),
  }
}
