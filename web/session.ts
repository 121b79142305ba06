/** Remembers until when the session lasts, so that a page need not ask before it loads its data. The cookie itself is out of reach. */
const STORAGE_KEY = 'oa-audience-session-ends'

export function isSessionRemembered(): boolean {
  return Date.parse(localStorage.getItem(STORAGE_KEY) ?? '') > Date.now()
}

/** @param endsAt null: nobody is signed in */
export function rememberSession(endsAt: string | null): void {
  if (endsAt === null) localStorage.removeItem(STORAGE_KEY)
  else localStorage.setItem(STORAGE_KEY, endsAt)
}
