// The colours that somebody chose, before anything is drawn. A classic script,
// since a module would come too late and the page would flash.
(function () {
  try {
    const theme = localStorage.getItem('theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    /* a browser that keeps nothing has the system's */
  }
})();
