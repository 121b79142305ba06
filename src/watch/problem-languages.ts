/** The languages of messages: their texts, and how they write periods. Commands use English. */
import { createRequire } from 'node:module'
import { age, periodOf } from '../http/format.ts'
import type messages from './message-texts.en.json'
import type { Formats, ProblemTexts } from './problem-texts.ts'

export const LANGUAGES = ['en', 'ja', 'th', 'zh'] as const
export type Language = (typeof LANGUAGES)[number]

/** Node.js 20 warns about an import of JSON. */
const require = createRequire(import.meta.url)

export const textsIn = (language: Language): ProblemTexts => require(`./problem-texts.${language}.json`)

/** The frame of a message. Apart from the problems, because pages do not show it. */
export const messagesIn = (language: Language): typeof messages => require(`./message-texts.${language}.json`)

interface MessageFormats extends Formats {
  /** `45 min` */
  duration: (seconds: number) => string
}

/** @param now to which times are relative */
export function formatsIn(language: Language, now: number): MessageFormats {
  const locale = `${language === 'zh' ? 'zh-Hant-TW' : language}-u-nu-latn`
  const duration = (seconds: number) => {
    if (language === 'en') return age(seconds)
    const [count, unit] = periodOf(seconds)
    return new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay: 'long' }).format(count)
  }
  const relative = (iso: string) => {
    const seconds = (now - Date.parse(iso)) / 1000
    if (language === 'en') return seconds < 0 ? `in ${age(-seconds)}` : `${age(seconds)} ago`
    const [count, unit] = periodOf(Math.abs(seconds))
    return new Intl.RelativeTimeFormat(locale).format(seconds < 0 ? count : -count, unit)
  }
  return { number: String, date: (day) => day, relative, duration }
}
