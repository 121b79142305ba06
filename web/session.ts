/** Stores the end of the session, so that a page can load its data immediately. Scripts cannot read the cookie. */
const STORAGE_KEY = 'oa-audience-session-ends'

export function isSessionRemembered(): boolean {
  return Date.parse(localStorage.getItem(STORAGE_KEY) ?? '') > Date.now()
}

/** @param endsAt null if nobody is signed in */
export function rememberSession(endsAt: string | null): void {
  if (endsAt === null) localStorage.removeItem(STORAGE_KEY)
  else localStorage.setItem(STORAGE_KEY, endsAt)
}
