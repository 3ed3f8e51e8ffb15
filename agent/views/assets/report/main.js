// Figures first, then the table; charts are drawn as soon as their library has been read.

showFigures();
showTheme();
showTable().then(() => { document.documentElement.dataset.ready = "yes"; });
